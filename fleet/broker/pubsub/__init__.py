"""The Pub/Sub door: Google's own clients at our topics and subscriptions."""

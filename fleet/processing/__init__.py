"""What the server does with a message of a dispatch job."""

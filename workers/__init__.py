"""Redis → HTTP: claims lanes, delivers their messages in order, settles what came of them."""

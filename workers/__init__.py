"""Redis → HTTP: claims groups, delivers their messages in order, settles what came of them."""

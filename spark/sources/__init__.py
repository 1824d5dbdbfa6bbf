"""Where rows come from and go to: the job store, the ledger of epochs, and the queue."""

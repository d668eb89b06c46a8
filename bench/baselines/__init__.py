"""What ackbox is measured against."""

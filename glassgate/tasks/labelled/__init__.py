"""What classification and regression share: reading, network, report page and exports."""

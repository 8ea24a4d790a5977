"""The side panel, widgets and displays of handles."""

"""Packing: how objects of each type are reduced to bytes and restored."""

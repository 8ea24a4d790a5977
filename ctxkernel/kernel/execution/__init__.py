"""The surroundings of a cell's run: the request, the guard, signals, output, files, background work.

Others may use any module here. The package knows neither turns nor displays.
"""

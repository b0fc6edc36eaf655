"""Reports, all made from one `dispersion.results.Audit`.

terminal.py for people, json_report.py and csv_report.py for programs, rounding.py for printed
numbers that stay true, writing.py for files that are whole or absent.
"""

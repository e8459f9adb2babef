"""Result files in; figures, tables and a report out. Nothing here imports torch."""

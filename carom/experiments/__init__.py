"""The paper and the demonstrations, as data: configs, runs, tables, figures."""

"""Doubles of servers that cannot be had in tests: real git behind them, their known flaws as switches."""

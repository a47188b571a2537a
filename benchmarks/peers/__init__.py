"""The programs and packages that pronk is measured against."""

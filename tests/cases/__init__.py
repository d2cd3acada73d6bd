"""What people reported of programs that do this job, each as the right behaviour.

The scenarios drive a whole controller shell against a vendor that misbehaves and judge by the
vendor's own books. How it is made to misbehave is the vendor's matter (`vendor.Vendor`), so that
the same scenarios hold for every provider: `VENDORS` in `conftest` names them.
"""

"""Going on with a broken stream on another replica, so that its client notices nothing.

`terms`: what of a request may be continued. `record`: what a client has been told. `text`: token
ids to text, as the engine does it. `seam`: the two ends joined. `facts`: what is known of engines.
"""

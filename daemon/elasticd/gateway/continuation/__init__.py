"""Going on with a broken stream on another replica, so that its client notices nothing.

`terms`: what of a request may be continued. `record`: what a client has been told. `kept`: what
both ways have in common. `seam`: the two ends joined by ids alone; `text`: token ids to text, as
the engine does it. `parsed`: the same behind a parser; `render`, `derender`: what is asked for it.
`generated`, `checked`: what other replicas say, believed as far as it could be true.
`engine`, `engines`: what is known of engines.
"""

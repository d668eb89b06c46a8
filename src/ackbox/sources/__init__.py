"""Deliveries of real senders: verify the signature, and find the fields of the event.

declaration  the checked table of a source, from the settings file or from code
webhook      one declared source: it verifies and reads requests
sample       a delivery as a sender would make it, to try a source
schemes      how a sender signs its deliveries, and how a signature is verified
fields       where the key, type, lane, sequence and time of an event are found in a delivery
split        deliveries with several events: cut each item out
query        the parameters of a URL
preset       the declaration of one sender: its scheme, its fields, its handshakes
presets      one module for each sender, and the table of all of them
"""

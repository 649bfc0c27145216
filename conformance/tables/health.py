"""The cases of the tier health: the protection of a node's memory, in seconds, beside other users of the device.

For each right there is a granted and a refused request, then the range of a region, its domain, a dead key, and windows.
A device without connected queue pairs is tested over UD. No case forges a handle, kills a process, changes fork settings
or locks more than a few pages, and all requests together are fewer than thirty refusals.
"""

HEALTH = "health"
ABOUT = "the protection of a node's memory, within seconds, safe beside other users of the device"
_PLACES = "reg_mr/data_path/unreliable-local-operation-by-access-by-place#qp_type=UD"
CASES = (
    # Rights
    "reg_mr/rights/local-read-with-none",
    "reg_mr/rights/local-write-grants-recv",
    "reg_mr/rights/without-local-write-no-recv+none",
    "reg_mr/rights/remote-write-granted-by-local-write+remote-write",
    "reg_mr/rights/remote-write-refused-by-local-write",
    "reg_mr/rights/remote-read-granted-by-remote-read",
    "reg_mr/rights/remote-read-refused-by-local-write+remote-write",
    "reg_mr/rights/atomic-fetch-and-add-granted",
    "reg_mr/rights/atomic-fetch-and-add-refused-by-local-write",
    # The range of a region
    "reg_mr/extent/rdma-write-of-the-last-8",
    "reg_mr/extent/rdma-write-across-the-end-at-296",
    "reg_mr/extent/rdma-read-of-one-byte-at-99",
    "reg_mr/extent/local-send-outside-from-296",
    # Its protection domain
    "reg_mr/extent/own-keys-serve",
    "reg_mr/extent/foreign-rkey-rdma-read",
    "reg_mr/extent/foreign-lkey-send",
    # Dead keys
    "reg_mr/extent/stale-rkey-rdma-write",
    "dereg_mr/deregistration/rkey-ends-for-rdma-read",
    # Windows
    "bind_mw/type_1/whole-region-with-remote-write+remote-read",
    "bind_mw/type_1/byte-before-the-window",
    "bind_mw/type_2/local-invalidation-ends-the-key",
    # Datagrams
    f"{_PLACES},op=SEND,access=none,place=whole",
    f"{_PLACES},op=RECV,access=local,place=whole",
    f"{_PLACES},op=RECV,access=none,place=whole",
    "reg_mr/sizes/local-operation-one-byte-too-long#kind=plain,qp_type=UD,op=SEND,side=behind",
    "reg_mr/domains/local-operation-by-domain#kind=plain,qp_type=UD,op=SEND,key=foreign,domain=own",
)

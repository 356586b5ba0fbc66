"""Who a traced process is: by the kernel, the kubelet and the driver first, by its own word last."""

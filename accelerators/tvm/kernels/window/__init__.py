"""What a window sees, channel by channel: pools, depthwise convolution, local response normalisation."""

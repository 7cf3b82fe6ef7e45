// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// A disk that is soon full.

import (
	"fmt"
	"strconv"
	"syscall"
)

const smallDisk = 4 << 20

// mountSmall mounts a small file system in memory on dir.
func mountSmall(dir string) (unmount func(), err error) {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+strconv.Itoa(smallDisk)); err != nil {
		return nil, fmt.Errorf("a small disk needs root, or `unshare --user --map-root-user --mount` before this command: %w", err)
	}
	return func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }, nil
}

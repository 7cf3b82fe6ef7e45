// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import "errors"

const smallDisk = 0

func mountSmall(string) (func(), error) {
	return nil, errors.New("a small disk is made on Linux only")
}

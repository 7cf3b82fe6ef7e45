// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMain is the collector, too: run with --config, it listens on the port that the file says and uses CPU time until SIGTERM.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != "--config" {
		os.Exit(m.Run())
	}
	config, err := os.ReadFile(os.Args[2])
	if err != nil || strings.TrimSpace(string(config)) == "broken" {
		fmt.Println("this configuration is broken")
		os.Exit(1)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	if _, err := net.Listen("tcp", "127.0.0.1:"+strings.TrimSpace(string(config))); err != nil {
		os.Exit(2)
	}
	for len(end) == 0 { // uses CPU time
	}
}

func TestAccounting(t *testing.T) {
	port, err := FreePort()
	require.NoError(t, err)
	c, err := Start(context.Background(), os.Args[0], fmt.Sprint(port), port)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		cpu, err := c.CPU()
		return err == nil && cpu >= 50*time.Millisecond
	}, 20*time.Second, time.Millisecond)
	memory, err := c.Memory()
	require.NoError(t, err)
	assert.Greater(t, memory, int64(1<<20))
	cpu, err := c.CPU()
	require.NoError(t, err)
	require.NoError(t, c.Stop())
	assert.GreaterOrEqual(t, c.TotalCPU(), cpu-20*time.Millisecond) // the tick of the clock that CPU reads
	assert.NoDirExists(t, c.folder)
}

func TestWhatDoesNotStartIsToldWhy(t *testing.T) {
	port, err := FreePort()
	require.NoError(t, err)
	_, err = Start(context.Background(), os.Args[0], "broken", port)
	assert.ErrorContains(t, err, "this configuration is broken")
}

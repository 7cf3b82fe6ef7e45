// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package process

// One collector: started on a configuration, asked for its CPU time and memory, and stopped. Linux only.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout = 20 * time.Second
	stopTimeout  = 20 * time.Second
	// userHZ is the unit of times in /proc, the same on every Linux that Go runs on.
	userHZ = 100
)

// Collector is a process of its own.
type Collector struct {
	cmd    *exec.Cmd
	folder string
	output bytes.Buffer
	exited chan error
}

// FreePort is a TCP port of the loopback interface that nobody listens on.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// Start runs a binary on a configuration until somebody listens on port, or ctx is over.
func Start(ctx context.Context, binary, config string, port int) (*Collector, error) {
	folder, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(folder, "config.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return start(ctx, exec.Command(binary, "--config", path), folder, port)
}

// StartSelf runs this program with other arguments until somebody listens on port, or ctx is over.
func StartSelf(ctx context.Context, port int, arguments ...string) (*Collector, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	return start(ctx, exec.Command(self, arguments...), folder, port)
}

func start(ctx context.Context, cmd *exec.Cmd, folder string, port int) (*Collector, error) {
	c := &Collector{cmd: cmd, folder: folder, exited: make(chan error, 1)}
	c.cmd.Stdout, c.cmd.Stderr = &c.output, &c.output
	if err := c.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	go func() { c.exited <- c.cmd.Wait() }()
	if err := c.await(ctx, port); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Collector) await(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return conn.Close()
		}
		select {
		case err := <-c.exited:
			c.exited <- err
			return fmt.Errorf("the collector ended: %w\n%s", err, c.output.String())
		case <-ctx.Done():
			return fmt.Errorf("the collector does not listen: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// CPU is what the process used so far, in user and system mode.
func (c *Collector) CPU() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in parentheses, which can hold anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const utime, stime = 14 - 3, 15 - 3
	if len(fields) <= stime {
		return 0, errors.New("/proc/PID/stat is short")
	}
	user, err := strconv.ParseUint(fields[utime], 10, 63)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseUint(fields[stime], 10, 63)
	return time.Duration(user+system) * time.Second / userHZ, err //nolint:gosec // 63 bits
}

// Memory is what the process has in physical memory, in bytes.
func (c *Collector) Memory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("/proc/PID/status has no VmRSS")
}

// Stop ends the process and waits for it: with SIGTERM, so that the final collect takes place, and then by force.
func (c *Collector) Stop() error {
	defer os.RemoveAll(c.folder)
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-c.exited:
		if err != nil {
			return fmt.Errorf("the collector: %w\n%s", err, c.output.String())
		}
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(errors.New("the collector did not stop in time"), c.cmd.Process.Kill(), <-c.exited)
	}
}

// TotalCPU is what the process used in its whole life, after Stop.
func (c *Collector) TotalCPU() time.Duration {
	return c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()
}

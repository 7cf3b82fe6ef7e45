// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

// Processes, ports and waiting, for all tests here.

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	// patience is how long anything may take on a busy machine; passing tests do not wait for it.
	patience = 60 * time.Second
	poll     = 50 * time.Millisecond
)

// tool is the program that run.sh put into the variable. Only CI has them all for sure.
func tool(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not set: run test/e2e/run.sh", variable)
		}
		t.Skipf("%s is not set: test/e2e/run.sh says why", variable)
	}
	return path
}

// program is a program of this repository.
func program(t *testing.T, variable, built string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		path = built
	}
	_, err := os.Stat(path)
	require.NoError(t, err, "run test/e2e/run.sh, which builds it")
	return path
}

// process is a running program. It ends with its test, and what it printed is shown if the test failed.
type process struct {
	name string
	cmd  *exec.Cmd
	out  *output
	done chan struct{} // closed when it has ended
	err  error         // how, when done
}

// output collects what a program prints while others read it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// start runs a program until the test is over.
func start(t *testing.T, env []string, path string, args ...string) *process {
	t.Helper()
	p := &process{name: path, out: &output{}, done: make(chan struct{})}
	p.cmd = exec.CommandContext(t.Context(), path, args...)
	// What a developer has set for SDKs is not for these.
	p.cmd.Env = slices.DeleteFunc(append(os.Environ(), env...), func(v string) bool { return strings.HasPrefix(v, "OTEL_") })
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 20 * time.Second // then it is killed
	// See freePort.
	portsMu.Lock()
	err := p.cmd.Start()
	portsMu.Unlock()
	require.NoError(t, err)
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		<-p.done
		if t.Failed() {
			t.Logf("%s %v printed:\n%s", path, args, p.out)
		}
	})
	return p
}

// run runs a program to its end and gives back what it printed.
func run(t *testing.T, env []string, path string, args ...string) (string, error) {
	t.Helper()
	p := start(t, env, path, args...)
	err := p.wait(t)
	return p.out.String(), err
}

func (p *process) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		require.FailNow(t, "does not end", p.name)
		return nil
	}
}

// terminate asks the process to end, as service managers do, and waits until it has.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.wait(t), "%s did not end well", p.name)
}

// awaitOK waits until url answers with status 200.
func (p *process) awaitOK(t *testing.T, url string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		select {
		case <-p.done:
			return // reported below, at once
		default:
		}
		_, err := fetch(t.Context(), url)
		assert.NoError(c, err)
	}, patience, poll, "%s does not become ready", p.name)
	select {
	case <-p.done:
		require.FailNow(t, "ended before it was ready", "%s: %v", p.name, p.err)
	default:
	}
}

type statusError int

func (s statusError) Error() string { return "HTTP status " + strconv.Itoa(int(s)) }

// fetch is the body of what url gives with status 200.
func fetch(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = statusError(resp.StatusCode)
	}
	return body, err
}

var (
	portsMu sync.Mutex
	ports   = map[int]bool{}
)

// freePort is a port that nobody uses. It lies below the range from which systems take the ports of
// outgoing connections, one of which could otherwise be there first. No program may be started meanwhile: until it
// runs it has all files of this one, the listener too, and the port would still be taken when this function returns.
func freePort(t *testing.T) string {
	t.Helper()
	portsMu.Lock()
	defer portsMu.Unlock()
	for range 1000 {
		port := 20000 + rand.IntN(10000)
		if ports[port] {
			continue
		}
		l, err := net.Listen("tcp", address(strconv.Itoa(port)))
		if err != nil {
			continue
		}
		require.NoError(t, l.Close())
		ports[port] = true
		return strconv.Itoa(port)
	}
	require.FailNow(t, "no free port")
	return ""
}

func address(port string) string { return net.JoinHostPort("127.0.0.1", port) }

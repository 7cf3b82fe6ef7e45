// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package program

// Ports for programs, and what they answer there.

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

var (
	portsMu sync.Mutex
	ports   = map[int]bool{}
)

// FreePort is a port that nobody uses. It lies below the range from which systems take the ports of
// outgoing connections, one of which could otherwise be there first. No program may be started meanwhile: until it
// runs it has all files of this one, the listener too, and the port would still be taken when this function returns.
func FreePort() string {
	portsMu.Lock()
	defer portsMu.Unlock()
	for {
		port := 20000 + rand.IntN(10000)
		if ports[port] {
			continue
		}
		l, err := net.Listen("tcp", Address(strconv.Itoa(port)))
		if err != nil {
			continue
		}
		_ = l.Close()
		ports[port] = true
		return strconv.Itoa(port)
	}
}

// Address is a port of the loopback interface.
func Address(port string) string { return net.JoinHostPort("127.0.0.1", port) }

// StatusError is the HTTP status of an answer that is none.
type StatusError int

// Error names the status.
func (s StatusError) Error() string { return "HTTP status " + strconv.Itoa(int(s)) }

// Fetch is the body of what url gives. A status other than 200 is a StatusError, beside the body.
func Fetch(ctx context.Context, url string) ([]byte, error) {
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
		err = StatusError(resp.StatusCode)
	}
	return body, err
}

// AwaitPort waits until the process takes connections on address.
func (p *Process) AwaitPort(address string, patience time.Duration) error {
	return p.AwaitReady(patience, func() error {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// AwaitOK waits until url answers with status 200.
func (p *Process) AwaitOK(ctx context.Context, url string, patience time.Duration) error {
	err := p.AwaitReady(patience, func() error {
		_, err := Fetch(ctx, url)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}

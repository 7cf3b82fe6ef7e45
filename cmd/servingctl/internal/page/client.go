// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package page

// The report over HTTP.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
	"github.com/otelcol-serving/otelcol-serving/internal/summary"
)

// DefaultEndpoint is where serving_summary listens by default.
const DefaultEndpoint = "http://localhost:8686"

// maxReport is the largest report that is read, far above that of ten thousand engines.
const maxReport = 256 << 20

// Client reads reports.
type Client struct {
	base    *url.URL
	headers http.Header
	http    http.Client
}

// Options say where the page is and how to get in.
type Options struct {
	// Endpoint is a URL, or host:port for http.
	Endpoint string
	// Headers are key=value.
	Headers []string
	// CAFile has certificates to verify the server with, in PEM; "": the system's.
	CAFile string
	// Timeout bounds one request.
	Timeout time.Duration
}

// NewClient makes a client; nothing is sent yet.
func NewClient(o Options) (*Client, error) {
	endpoint := o.Endpoint
	if !strings.Contains(endpoint, "://") {
		endpoint = "http://" + endpoint
	}
	base, err := url.Parse(endpoint)
	if err != nil || base.Hostname() == "" || base.Scheme != "http" && base.Scheme != "https" || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("--endpoint must be host:port or an http or https URL, it is %q", o.Endpoint)
	}
	c := &Client{base: base, headers: http.Header{}, http: http.Client{Timeout: o.Timeout}}
	for _, h := range o.Headers {
		key, value, ok := strings.Cut(h, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--header must be key=value, it is %q", h)
		}
		c.headers.Add(key, value)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // one request, or one every second
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca-file: %s has no certificate in PEM", o.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	c.http.Transport = transport
	return c, nil
}

// Report is the present report, and its bytes as they came.
func (c *Client) Report(ctx context.Context) (*summary.Report, []byte, error) {
	body, err := c.get(ctx, "api/v1/summary", "application/json")
	if err != nil {
		return nil, nil, err
	}
	var r summary.Report
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, nil, fmt.Errorf("%s answers, but not with a summary (%w): is it the address of a serving_summary extension?", c.base, err)
	}
	if major, _, _ := strings.Cut(r.SchemaVersion, "."); major != "1" {
		return nil, nil, fmt.Errorf("the summary has schema version %q, and this servingctl reads 1: use one of the Collector's version", r.SchemaVersion)
	}
	return &r, body, nil
}

// Markdown is the present report as text for people.
func (c *Client) Markdown(ctx context.Context) ([]byte, error) {
	return c.get(ctx, "?format=markdown", "text/markdown")
}

func (c *Client) get(ctx context.Context, path, accept string) ([]byte, error) {
	at := c.base.JoinPath("/")
	ref, err := url.Parse(path)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.ResolveReference(ref).String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header = c.headers.Clone()
	req.Header.Set("Accept", accept)
	if host := c.headers.Get("Host"); host != "" {
		req.Host = host
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: is a Collector with the serving_summary extension running there?", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReport+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers %s", c.base, resp.Status)
	case len(body) > maxReport:
		return nil, fmt.Errorf("%s answers with more than %d MiB", c.base, maxReport>>20)
	}
	return body, nil
}

// ErrNoDiagnosis is that of a wait that was in vain.
var ErrNoDiagnosis = errors.New("no engine has a diagnosis yet")

// Wait asks every second until every engine has been diagnosed, of which there must be one, for at most the given time.
func (c *Client) Wait(ctx context.Context, limit time.Duration) (*summary.Report, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var last error
	for {
		r, body, err := c.Report(ctx)
		switch {
		case err == nil && Diagnosed(r):
			return r, body, nil
		case err == nil:
			last = undiagnosed(r)
		case ctx.Err() == nil || last == nil:
			last = err
		}
		select {
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("waited %v: %w", limit, last)
		case <-ticker.C:
		}
	}
}

// Diagnosed reports whether every engine has a verdict that is one.
func Diagnosed(r *summary.Report) bool { return len(r.Engines) > 0 && undiagnosed(r) == nil }

func undiagnosed(r *summary.Report) error {
	if len(r.Engines) == 0 {
		return fmt.Errorf("%w: none has sent a request", ErrNoDiagnosis)
	}
	for i := range r.Engines {
		e := &r.Engines[i]
		if e.Diagnosis.Verdict == diagnosis.NoVerdict.String() {
			return fmt.Errorf("%w: %s: %s", ErrNoDiagnosis, Name(e), e.Diagnosis.Sentence)
		}
	}
	return nil
}

// Name is what people call an engine.
func Name(e *summary.Engine) string {
	if e.Service == "" || e.Service == e.Instance {
		return e.Instance
	}
	return e.Service + "/" + e.Instance
}

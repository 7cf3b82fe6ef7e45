// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package servingsummaryextension

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/confmap"
)

// The placeholders of trace_url.
const (
	traceIDPlaceholder = "{trace_id}"
	spanIDPlaceholder  = "{span_id}"
)

const (
	defaultEndpoint = "localhost:8686"
	defaultRefresh  = 5 * time.Second
	minRefresh      = time.Second
	maxTitle        = 100 // runes
)

// Config is the configuration of the serving_summary extension.
type Config struct {
	confighttp.ServerConfig `mapstructure:",squash"`
	// Title heads the page, for those who have several Collectors. Empty: "Serving summary".
	Title string `mapstructure:"title"`
	// TraceURL is the address of one trace in a tracing backend, with {trace_id} and, if wanted, {span_id} in it. Empty: requests
	// are shown without links.
	TraceURL string `mapstructure:"trace_url"`
	// Refresh is how often an open page fetches new figures. 0: never.
	Refresh time.Duration `mapstructure:"refresh"`
}

var (
	_ component.Config  = (*Config)(nil)
	_ confmap.Validator = (*Config)(nil)
)

func createDefaultConfig() component.Config {
	server := confighttp.NewDefaultServerConfig()
	server.NetAddr.Endpoint = defaultEndpoint
	// A page is asked for by people and comes from memory: nobody needs longer.
	server.ReadHeaderTimeout = 10 * time.Second
	server.ReadTimeout = 10 * time.Second
	server.WriteTimeout = 30 * time.Second
	return &Config{ServerConfig: server, Refresh: defaultRefresh}
}

// Validate reports everything that is wrong.
func (c *Config) Validate() error {
	var err error
	if c.NetAddr.Endpoint == "" {
		err = errors.Join(err, fmt.Errorf("endpoint is empty; give a host and port, such as %s", defaultEndpoint))
	} else if c.NetAddr.Transport == "" || strings.HasPrefix(string(c.NetAddr.Transport), "tcp") {
		_, port, splitErr := net.SplitHostPort(c.NetAddr.Endpoint)
		if _, portErr := strconv.ParseUint(port, 10, 16); splitErr != nil || portErr != nil {
			err = errors.Join(err, fmt.Errorf("endpoint: %q is no host and port; write one such as %s", c.NetAddr.Endpoint, defaultEndpoint))
		}
	}
	if c.Refresh != 0 && c.Refresh < minRefresh {
		err = errors.Join(err, fmt.Errorf("refresh: %v is too often; use %v or more, or 0 for never", c.Refresh, minRefresh))
	}
	if n := utf8.RuneCountInString(c.Title); n > maxTitle {
		err = errors.Join(err, fmt.Errorf("title has %d characters; use at most %d", n, maxTitle))
	}
	return errors.Join(err, validateTraceURL(c.TraceURL))
}

func validateTraceURL(template string) error {
	if template == "" {
		return nil
	}
	const example = "such as http://localhost:16686/trace/{trace_id}"
	rest := strings.NewReplacer(traceIDPlaceholder, "0", spanIDPlaceholder, "0").Replace(template)
	u, err := url.Parse(rest)
	switch {
	case err != nil:
		// url.Parse repeats what it was given, and a URL can hold a password.
		return fmt.Errorf("trace_url is not a URL; write one %s", example)
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("trace_url must begin with http:// or https://, %s", example)
	case u.Host == "":
		return fmt.Errorf("trace_url has no host; write one %s", example)
	case !strings.Contains(template, traceIDPlaceholder):
		return fmt.Errorf("trace_url does not contain %s, so that every link would lead to the same place; write one %s", traceIDPlaceholder, example)
	case strings.ContainsAny(rest, "{}"):
		return fmt.Errorf("trace_url has a placeholder that is neither %s nor %s", traceIDPlaceholder, spanIDPlaceholder)
	case placeholderInHost(template):
		return fmt.Errorf("trace_url has a placeholder in its host; it belongs into the path or behind it, %s", example)
	}
	return nil
}

func placeholderInHost(template string) bool {
	_, rest, _ := strings.Cut(template, "://")
	host := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		host = rest[:end]
	}
	return strings.Contains(host, "{")
}

// Package prometheus reads the history of charts from a Prometheus server, with requests of bounded time and size, and only to this
// server.
package prometheus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/api"
	apiv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// The bounds of a request.
const (
	timeout          = 10 * time.Second
	maxResponseBytes = 4 << 20
	maxSeries        = 20
)

// Client reads from one Prometheus server.
type Client struct{ api apiv1.API }

// NewClient returns a client of the server with the address, which may have a path, a user and a password.
func NewClient(address string) (*Client, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
		return nil, errors.New("must be an address such as http://127.0.0.1:9090") // without the address, which may have a password
	}
	c, err := api.NewClient(api.Config{Address: address, Client: &http.Client{
		Transport: boundedTransport{http.DefaultTransport}, Timeout: timeout,
		// A redirect could lead to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
	}})
	if err != nil {
		return nil, err
	}
	return &Client{apiv1.NewAPI(c)}, nil
}

var (
	errRedirect = errors.New("the server redirects to another address: use that one")
	errTooLarge = fmt.Errorf("the answer has more than %d bytes", maxResponseBytes)
)

// Range evaluates a query at regular times until end. The result has a series for each value of the label state.
func (c *Client) Range(ctx context.Context, query string, end time.Time, window, step time.Duration) (map[string][]view.Point, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	value, _, err := c.api.QueryRange(ctx, query, apiv1.Range{Start: end.Add(-window), End: end, Step: step}, apiv1.WithTimeout(timeout))
	if err != nil {
		return nil, errors.New(terminal.Sanitize(err.Error()))
	}
	matrix, isMatrix := value.(model.Matrix)
	if !isMatrix || len(matrix) > maxSeries {
		return nil, errors.New("the answer is not the history of an object")
	}
	all := map[string][]view.Point{}
	for _, series := range matrix {
		var points []view.Point
		for _, pair := range series.Values {
			if number := float64(pair.Value); !math.IsNaN(number) && !math.IsInf(number, 0) {
				points = append(points, view.Point{Time: pair.Timestamp.Time(), Value: number})
			}
		}
		all[string(series.Metric["state"])] = points
	}
	return all, nil
}

type boundedTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = &boundedBody{ReadCloser: response.Body, left: maxResponseBytes}
	}
	return response, err
}

type boundedBody struct {
	io.ReadCloser

	left int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

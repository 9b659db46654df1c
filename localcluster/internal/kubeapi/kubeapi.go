// Package kubeapi is a small client for the few requests that localcluster sends to an
// API server. client-go would take longer to compile than the rest of the program.
package kubeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Client talks to one API server as its administrator.
type Client struct {
	server string
	http   *http.Client
}

// New reads ca.crt, admin.crt and admin.key in pkiDir.
func New(server, pkiDir string) (*Client, error) {
	authority, err := os.ReadFile(filepath.Join(pkiDir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("ca.crt contains no certificate")
	}
	certificate, err := tls.LoadX509KeyPair(filepath.Join(pkiDir, "admin.crt"), filepath.Join(pkiDir, "admin.key"))
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{ // no proxy: the server is on this machine
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}},
	}
	return &Client{server: server, http: &http.Client{Transport: transport, Timeout: 10 * time.Second}}, nil
}

// Ready returns nil if the API server reports that it is ready.
func (c *Client) Ready(ctx context.Context) error {
	return c.do(ctx, http.MethodGet, "/readyz", nil, nil)
}

// WaitReady returns when the API server is ready.
func (c *Client) WaitReady(ctx context.Context) error {
	return Wait(ctx, func() (bool, error) { return c.Ready(ctx) == nil, nil })
}

// Wait returns when done returns true or an error, or when ctx is cancelled.
func Wait(ctx context.Context, done func() (bool, error)) error {
	ticks := time.NewTicker(50 * time.Millisecond)
	defer ticks.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
	}
}

// Exists reports whether there is an object at path.
func (c *Client) Exists(ctx context.Context, path string) (bool, error) {
	err := c.do(ctx, http.MethodGet, path, nil, nil)
	if hasStatus(err, http.StatusNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Create posts object to the collection at path. It does not
// change an object that already exists.
func (c *Client) Create(ctx context.Context, path string, object any) error {
	err := c.do(ctx, http.MethodPost, path, object, nil)
	if hasStatus(err, http.StatusConflict) {
		return nil
	}
	return err
}

// Node is the part of a node that localcluster reads.
type Node struct {
	Name  string
	Ready bool
}

// Nodes lists the cluster's nodes.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := c.do(ctx, http.MethodGet, "/api/v1/nodes", nil, &list); err != nil {
		return nil, err
	}
	var nodes []Node
	for _, item := range list.Items {
		node := Node{Name: item.Metadata.Name}
		for _, condition := range item.Status.Conditions {
			if condition.Type == "Ready" {
				node.Ready = condition.Status == "True"
			}
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

type statusError struct {
	code int
	body string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the API server answers %d: %s", e.code, e.body)
}

func hasStatus(err error, code int) bool {
	var status *statusError
	return errors.As(err, &status) && status.code == code
}

func (c *Client) do(ctx context.Context, method, path string, body, answer any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000)) // without a body, the status code is enough
		return &statusError{response.StatusCode, string(text)}
	}
	if answer == nil {
		_, err := io.Copy(io.Discard, response.Body)
		return err
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

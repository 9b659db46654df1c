// Package podclient sends requests to the API server with the token of its Pod. It is for programs that need few requests, for which
// client-go would need more memory than the rest of the program.
package podclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// TokenDirectory contains the API server's certificate and the token, as in every Pod.
const TokenDirectory = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // the path of a credential, not a credential

const (
	// maxStatusBytes bounds the part of an error that is read, and maxErrorBytes the part that is reported.
	maxStatusBytes = 64 << 10
	maxErrorBytes  = 1024
)

// Client sends requests to the API server.
type Client struct {
	// HTTP has no timeout: contexts have one.
	HTTP *http.Client

	base, token string
}

// New returns a client for the API server in the environment, with the certificate and the token in a directory.
func New(getenv func(string) string, directory string) (*Client, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must both be set")
	}
	authority, err := os.ReadFile(filepath.Join(directory, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("ca.crt contains no certificate")
	}
	return &Client{
		HTTP:  &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}},
		base:  "https://" + net.JoinHostPort(host, port),
		token: filepath.Join(directory, "token"),
	}, nil
}

// StatusError is a response other than 200 OK.
type StatusError struct {
	Code         int
	Status, Body string
}

// Error implements error.
func (e *StatusError) Error() string {
	return fmt.Sprintf("the API server returned %s: %s", e.Status, e.Body)
}

// Do returns the response to a request, which the caller closes, or a StatusError. It reads the token for each request: the kubelet
// replaces the token before it expires.
func (c *Client) Do(ctx context.Context, method, path string, header map[string]string, body []byte) (*http.Response, error) {
	token, err := os.ReadFile(c.token)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := c.HTTP.Do(request)
	if err != nil || response.StatusCode == http.StatusOK {
		return response, err
	}
	defer response.Body.Close()
	return nil, &StatusError{response.StatusCode, response.Status, readMessage(response.Body)}
}

// readMessage returns the message of a Status, or the beginning of another response.
func readMessage(body io.Reader) string {
	raw, _ := io.ReadAll(io.LimitReader(body, maxStatusBytes))
	var status struct {
		Message string `json:"message"`
	}
	message := string(raw)
	if err := json.Unmarshal(raw, &status); err == nil && status.Message != "" {
		message = status.Message
	}
	return strings.TrimSpace(strings.ToValidUTF8(message[:min(len(message), maxErrorBytes)], "�"))
}

// Command plain is a worker that does not use the worker library: an HTTP server that receives jobs, or a command that reads one job from standard
// input. It appends completed jobs to the ledger and ignores SIGTERM.
//
//	plain serve
//	plain once
//	plain post URL
//
// The last sends a job to the gateway, with the token and the certificate authority that are mounted.
//
// The ID of a job determines its result: "bad-" fails permanently, and "later-" fails in the
// first attempt. VERSION is written to the ledger as the revision.
package main

import (
	"cmp"
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
	"strings"
	"time"
)

func main() {
	if err := runCommand(); err != nil {
		fmt.Fprintln(os.Stderr, "plain:", err)
		os.Exit(1)
	}
}

func runCommand() error {
	if len(os.Args) == 2 && os.Args[1] == "serve" {
		return serveHTTP()
	}
	if len(os.Args) == 3 && os.Args[1] == "post" {
		return postJob(os.Args[2])
	}
	payload, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	switch status := doJob(payload, os.Getenv("YARDMASTER_JOB_ATTEMPT")); status {
	case http.StatusOK:
		return nil
	case http.StatusBadRequest:
		os.Exit(65)
	case http.StatusServiceUnavailable:
		os.Exit(75)
	default:
		return fmt.Errorf("the job failed with status %d", status)
	}
	return nil
}

func serveHTTP() error {
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: time.Second}
	server.Handler = http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		payload, err := io.ReadAll(request.Body)
		if err != nil {
			return // the client has disconnected
		}
		response.WriteHeader(doJob(payload, request.Header.Get("Yardmaster-Job-Attempt")))
	})
	return server.ListenAndServe()
}

// doJob does a job and returns its result as an HTTP status.
func doJob(payload []byte, attempt string) int {
	var order struct {
		ID           string `json:"id"`
		Milliseconds int    `json:"milliseconds"`
	}
	switch {
	case json.Unmarshal(payload, &order) != nil, strings.HasPrefix(order.ID, "bad-"):
		return http.StatusBadRequest
	case strings.HasPrefix(order.ID, "later-") && attempt == "1":
		return http.StatusServiceUnavailable
	}
	// The line is written halfway through. A job that is interrupted later is retried although its effect is complete, as can happen with real work.
	half := time.Duration(order.Milliseconds) * time.Millisecond / 2
	time.Sleep(half)
	if err := appendToLedger(order.ID, attempt); err != nil {
		return http.StatusInternalServerError
	}
	time.Sleep(half)
	return http.StatusOK
}

func appendToLedger(id, attempt string) error {
	ledger, err := os.OpenFile(os.Getenv("LEDGER"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // the test sets the path
	if err != nil {
		return err
	}
	defer ledger.Close()
	pod, err := os.Hostname()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(ledger, "%s %s %s %s\n", id, pod, cmp.Or(os.Getenv("VERSION"), "-"), attempt)
	return err
}

// gatewayDir has the files of examples/gateway/producer.yaml.
const gatewayDir = "/var/run/yardmaster-gateway"

func postJob(url string) error {
	authority, err := os.ReadFile(filepath.Join(gatewayDir, "ca.crt"))
	token, tokenErr := os.ReadFile(filepath.Join(gatewayDir, "token"))
	if err := errors.Join(err, tokenErr); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return errors.New("ca.crt has no certificate")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"id": "7", "milliseconds": 10}`)) //nolint:gosec // the test sets the URL
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusCreated {
		err = fmt.Errorf("the gateway answers %s: %s", response.Status, body)
	}
	return err
}

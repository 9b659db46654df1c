package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// tokenDirectory is where Kubernetes puts what a program needs to speak to it.
	tokenDirectory = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // no credential: where one is found
	// defaultRenewInterval is how often activity is shown. The status of the session tells of it to the
	// minute, so more often is of no use.
	defaultRenewInterval = 10 * time.Second
	// requestTimeout is how long the API server has to answer. Work does not wait for it any longer.
	requestTimeout = 5 * time.Second
	// microTimeFormat is how Kubernetes writes the time of a Lease.
	microTimeFormat = "2006-01-02T15:04:05.000000Z07:00"
	// runFinishedAnnotation says on the Lease which Job has finished what it was at.
	runFinishedAnnotation = "yardmaster.dev/run-finished"
)

// leaseClient is where the runner shows that it is at work. Without a name there is none, and
// nothing is done.
type leaseClient struct {
	url, job, token string
	client          *http.Client
	renewInterval   time.Duration
	lastRenewal     time.Time
}

// newLeaseClient is the one that the environment names. A client for Kubernetes would do the same
// with a hundred more modules: it takes a single request.
func newLeaseClient(getenv func(string) string, job, directory string) (*leaseClient, error) {
	l := &leaseClient{job: job, renewInterval: defaultRenewInterval, token: filepath.Join(directory, "token")}
	name := getenv("AGENTIC_LEASE")
	if name == "" {
		return l, nil
	}
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT do not say where the API server is")
	}
	authority, err := os.ReadFile(filepath.Join(directory, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("ca.crt holds no certificate")
	}
	l.url = fmt.Sprintf("https://%s/apis/coordination.k8s.io/v1/namespaces/%s/leases/%s", net.JoinHostPort(host, port), getenv("AGENTIC_NAMESPACE"), name)
	l.client = &http.Client{
		Timeout:   requestTimeout,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
	}
	return l, nil
}

// renewIfDue shows that there is activity, unless it has just been shown. That it cannot be shown
// is no reason to stop working: it is said, and tried again with the next activity.
func (l *leaseClient) renewIfDue(ctx context.Context) {
	if l.timeUntilDue() > 0 {
		return
	}
	l.lastRenewal = time.Now()
	if l.url == "" {
		return
	}
	if err := l.patchLease(ctx, map[string]any{"spec": l.renewedSpec()}); err != nil && ctx.Err() == nil {
		log.Print("Renewing the Lease: ", err)
	}
}

// timeUntilDue is how long nothing has to be renewed yet. (A ticker would not do: a tick that
// comes a moment early is in vain, and the next one far away.)
func (l *leaseClient) timeUntilDue() time.Duration {
	return max(l.renewInterval-time.Since(l.lastRenewal), 0)
}

// markRunFinished says that this Job has finished what it was at.
func (l *leaseClient) markRunFinished(ctx context.Context) error {
	if l.url == "" {
		return errors.New("the session has no Lease to say so")
	}
	return l.patchLease(ctx, map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{runFinishedAnnotation: l.job}}, "spec": l.renewedSpec(),
	})
}

func (l *leaseClient) renewedSpec() map[string]any {
	return map[string]any{"renewTime": time.Now().UTC().Format(microTimeFormat), "holderIdentity": l.job}
}

func (l *leaseClient) patchLease(ctx context.Context, change any) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	// The kubelet puts a new token there before the old one is of no use any more.
	token, err := os.ReadFile(l.token)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, l.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := l.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	const enough = 1024
	said, err := io.ReadAll(io.LimitReader(response.Body, enough))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the API server answers %s: %s", response.Status, strings.TrimSpace(string(said)))
	}
	return err
}

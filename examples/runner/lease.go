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
	"strconv"
	"strings"
	"time"
)

const (
	// tokenDirectory contains the API server's certificate and the token, as in every Pod.
	tokenDirectory = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // the path of a credential, not a credential
	// defaultRenewInterval limits how often activity is reported. The session's status shows it
	// to the minute.
	defaultRenewInterval = 10 * time.Second
	// requestTimeout limits how long the work waits for the API server.
	requestTimeout = 5 * time.Second
	// microTimeFormat is the format of a Lease's renewTime.
	microTimeFormat = "2006-01-02T15:04:05.000000Z07:00"
	// runFinishedAnnotation of the Lease names the Job whose run is finished.
	runFinishedAnnotation = "yardmaster.dev/run-finished"
	// costAnnotation of the Lease contains the Job and what its attempt cost until now.
	costAnnotation = "yardmaster.dev/cost-usd"
)

// leaseClient reports activity through the session's Lease. Without a Lease it does nothing.
type leaseClient struct {
	url, job, token string
	client          *http.Client
	renewInterval   time.Duration
	lastRenewal     time.Time
	// cost of this attempt until now; nil if it is not known. Each renewal reports it.
	cost *float64
}

// newLeaseClient returns a client for the Lease in the environment. It needs only one kind of request,
// for which client-go would add a hundred modules.
func newLeaseClient(getenv func(string) string, job, directory string) (*leaseClient, error) {
	l := &leaseClient{job: job, renewInterval: defaultRenewInterval, token: filepath.Join(directory, "token")}
	name := getenv("AGENTIC_LEASE")
	if name == "" {
		return l, nil
	}
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
	l.url = fmt.Sprintf("https://%s/apis/coordination.k8s.io/v1/namespaces/%s/leases/%s", net.JoinHostPort(host, port), getenv("AGENTIC_NAMESPACE"), name)
	l.client = &http.Client{
		Timeout:   requestTimeout,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
	}
	return l, nil
}

// renewIfDue reports activity, unless it did so within the interval. A failure is logged and does not
// stop the work; the next activity tries again.
func (l *leaseClient) renewIfDue(ctx context.Context) {
	if l.timeUntilDue() > 0 {
		return
	}
	l.lastRenewal = time.Now()
	if l.url == "" {
		return
	}
	if err := l.patchLease(ctx, l.renewal(map[string]string{})); err != nil && ctx.Err() == nil {
		log.Print("Renewing the Lease: ", err)
	}
}

// restoreCost continues the cost of an attempt whose runner was interrupted, as by the preemption of a queue: the Lease
// still has its last report.
func (l *leaseClient) restoreCost(ctx context.Context) {
	if l.url == "" {
		return
	}
	answer, err := l.sendRequest(ctx, http.MethodGet, nil)
	if err != nil {
		log.Print("Reading the Lease: ", err)
		return
	}
	var lease struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(answer, &lease); err != nil {
		log.Print("Reading the Lease: ", err)
		return
	}
	dollars, found := strings.CutPrefix(lease.Metadata.Annotations[costAnnotation], l.job+"=")
	if cost, err := strconv.ParseFloat(dollars, 64); found && err == nil {
		l.cost = &cost
	}
}

// timeUntilDue returns how long no renewal is due. A ticker would not work: a tick that is a moment
// early is lost, and the next one is an interval away.
func (l *leaseClient) timeUntilDue() time.Duration {
	return max(l.renewInterval-time.Since(l.lastRenewal), 0)
}

// markRunFinished reports that this Job's run is finished.
func (l *leaseClient) markRunFinished(ctx context.Context) error {
	if l.url == "" {
		return errors.New("the session has no Lease; set activityLease in its SessionRunner")
	}
	return l.patchLease(ctx, l.renewal(map[string]string{runFinishedAnnotation: l.job}))
}

// renewal returns a change of the Lease that reports activity, the cost, and these annotations.
func (l *leaseClient) renewal(annotations map[string]string) map[string]any {
	change := map[string]any{"spec": map[string]any{"renewTime": time.Now().UTC().Format(microTimeFormat), "holderIdentity": l.job}}
	if l.cost != nil {
		const digits = 6
		annotations[costAnnotation] = l.job + "=" + strconv.FormatFloat(*l.cost, 'f', digits, 64)
	}
	if len(annotations) > 0 {
		change["metadata"] = map[string]any{"annotations": annotations}
	}
	return change
}

func (l *leaseClient) patchLease(ctx context.Context, change any) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = l.sendRequest(ctx, http.MethodPatch, body)
	return err
}

// sendRequest returns what the API server answers, unless that is an error.
func (l *leaseClient) sendRequest(ctx context.Context, method string, body []byte) ([]byte, error) {
	// The kubelet replaces the token before it expires.
	token, err := os.ReadFile(l.token)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, l.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := l.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	const maxAnswerBytes, maxErrorBytes = 1 << 20, 1024
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if response.StatusCode != http.StatusOK {
		message := answer[:min(len(answer), maxErrorBytes)]
		return nil, fmt.Errorf("the API server returned %s: %s", response.Status, strings.TrimSpace(string(message)))
	}
	return answer, err
}

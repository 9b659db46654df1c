package sessionrunner

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
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// tokenDirectory contains the API server's certificate and the token, as in every Pod.
	tokenDirectory = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // the path of a credential, not a credential
	renewInterval  = 10 * time.Second
	requestTimeout = 5 * time.Second
	// microTimeFormat is the format of a Lease's renewTime.
	microTimeFormat       = "2006-01-02T15:04:05.000000Z07:00"
	runFinishedAnnotation = "yardmaster.dev/run-finished"
	costAnnotation        = "yardmaster.dev/cost-usd"
)

// lease reports activity and cost through the session's Lease. Without a Lease it does nothing. It needs only two
// requests, for which client-go would need more memory than the whole runner.
type lease struct {
	url, job, token string
	client          *http.Client
	interval        time.Duration
	logf            func(format string, arguments ...any)

	activity chan struct{}
	mutex    sync.Mutex
	// cost of this process until now; nil if it is not known.
	cost *float64
	// earlierCost is what earlier processes of the same attempt reported.
	earlierCost float64
	runFinished bool
}

// newLease returns a client for the Lease in the environment.
func newLease(getenv func(string) string, job, directory string, logf func(string, ...any)) (*lease, error) {
	l := &lease{job: job, interval: renewInterval, token: filepath.Join(directory, "token"), activity: make(chan struct{}, 1), logf: logf}
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

// start reads what earlier processes of the attempt cost, and renews the Lease once: without that, the operator does not
// know the activity of the runner.
func (l *lease) start(ctx context.Context) {
	if l.url == "" {
		return
	}
	if err := l.restoreCost(ctx); err != nil {
		l.logf("Reading the Lease: %s", err)
	}
	l.renew(ctx)
}

// run renews the Lease after activity, at most once in each interval, until ctx ends.
func (l *lease) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.activity:
		}
		l.renew(ctx)
		timer := time.NewTimer(l.interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// reportActivity reports that the agent did something, and what it cost until now. It never waits.
func (l *lease) reportActivity(cost *float64) {
	l.mutex.Lock()
	l.cost = cost
	l.mutex.Unlock()
	select {
	case l.activity <- struct{}{}:
	default: // the next renewal includes it
	}
}

// finishRun reports that the run of an interactive session is finished.
func (l *lease) finishRun(ctx context.Context) {
	l.mutex.Lock()
	l.runFinished = true
	l.mutex.Unlock()
	l.renew(ctx)
}

// renew writes the Lease. A failure does not stop the work; the next activity tries again.
func (l *lease) renew(ctx context.Context) {
	if l.url == "" {
		return
	}
	body, err := json.Marshal(l.renewal(time.Now()))
	if err == nil {
		_, err = l.send(ctx, http.MethodPatch, body)
	}
	if err != nil && ctx.Err() == nil {
		l.logf("Renewing the Lease: %s", err)
	}
}

func (l *lease) renewal(now time.Time) map[string]any {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	change := map[string]any{"spec": map[string]any{"renewTime": now.UTC().Format(microTimeFormat), "holderIdentity": l.job}}
	annotations := map[string]string{}
	if l.cost != nil {
		const digits = 6
		annotations[costAnnotation] = l.job + "=" + strconv.FormatFloat(*l.cost+l.earlierCost, 'f', digits, 64)
	}
	if l.runFinished {
		annotations[runFinishedAnnotation] = l.job
	}
	if len(annotations) > 0 {
		change["metadata"] = map[string]any{"annotations": annotations}
	}
	return change
}

// restoreCost continues the cost of an attempt whose runner was interrupted, as by the preemption of a queue.
func (l *lease) restoreCost(ctx context.Context) error {
	answer, err := l.send(ctx, http.MethodGet, nil)
	if err != nil {
		return err
	}
	var object struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(answer, &object); err != nil {
		return err
	}
	dollars, found := strings.CutPrefix(object.Metadata.Annotations[costAnnotation], l.job+"=")
	if cost, err := strconv.ParseFloat(dollars, 64); found && err == nil && cost >= 0 {
		l.earlierCost = cost
	}
	return nil
}

// send returns what the API server answers, unless that is an error. It reads the token for each request: the kubelet
// replaces it before it expires.
func (l *lease) send(ctx context.Context, method string, body []byte) ([]byte, error) {
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
		return nil, fmt.Errorf("the API server returned %s: %s", response.Status, strings.TrimSpace(cut(string(answer), maxErrorBytes)))
	}
	return answer, err
}

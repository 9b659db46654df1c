package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/podclient"
)

const (
	renewInterval  = 10 * time.Second
	requestTimeout = 5 * time.Second
	// microTimeFormat is the format of a Lease's renewTime.
	microTimeFormat       = "2006-01-02T15:04:05.000000Z07:00"
	runFinishedAnnotation = "yardmaster.dev/run-finished"
	costAnnotation        = "yardmaster.dev/cost-usd"
)

// lease reports activity and cost through the session's Lease. Without a Lease it does nothing.
type lease struct {
	// path of the Lease; empty without a Lease.
	path, job string
	client    *podclient.Client
	interval  time.Duration
	logf      func(format string, arguments ...any)

	activity chan struct{}
	mutex    sync.Mutex
	// activeTime is the time of the last activity.
	activeTime time.Time
	// cost of this process until now; nil if unknown.
	cost *float64
	// earlierCost is the cost that earlier processes of the same attempt reported.
	earlierCost float64
	runFinished bool
}

func newLease(getenv func(string) string, job, directory string, logf func(string, ...any)) (*lease, error) {
	l := &lease{job: job, interval: renewInterval, activity: make(chan struct{}, 1), logf: logf}
	name := getenv("AGENTIC_LEASE")
	if name == "" {
		return l, nil
	}
	l.path = fmt.Sprintf("/apis/coordination.k8s.io/v1/namespaces/%s/leases/%s", getenv("AGENTIC_NAMESPACE"), name)
	var err error
	if l.client, err = podclient.New(getenv, directory); err != nil {
		return nil, err
	}
	return l, nil
}

// start reads the cost of earlier processes of the attempt, and renews the Lease once, so that the operator sees the activity of the
// runner.
func (l *lease) start(ctx context.Context) {
	if l.path == "" {
		return
	}
	if err := l.restoreCost(ctx); err != nil {
		l.logf("Reading the Lease: %s", err)
	}
	l.activeTime = time.Now() // run does not run yet
	l.renew(ctx)
}

// run renews the Lease after activity, and after a failure, at most once in each interval, until ctx ends.
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

// reportActivity reports activity of the agent, and its cost until now. It never waits.
func (l *lease) reportActivity(cost *float64) {
	l.mutex.Lock()
	l.cost, l.activeTime = cost, time.Now()
	l.mutex.Unlock()
	l.requestRenewal()
}

func (l *lease) finishRun(ctx context.Context) {
	l.mutex.Lock()
	l.runFinished, l.activeTime = true, time.Now()
	l.mutex.Unlock()
	l.renew(ctx)
}

func (l *lease) requestRenewal() {
	select {
	case l.activity <- struct{}{}:
	default: // the next renewal includes it
	}
}

// renew writes the Lease. A failure does not stop the work: run tries again, with the time of the last activity, because no further
// activity may follow.
func (l *lease) renew(ctx context.Context) {
	if l.path == "" {
		return
	}
	body, err := json.Marshal(l.renewal())
	if err == nil {
		_, err = l.send(ctx, http.MethodPatch, body)
	}
	if err != nil && ctx.Err() == nil {
		l.logf("Renewing the Lease: %s", err)
		l.requestRenewal()
	}
}

func (l *lease) renewal() map[string]any {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	change := map[string]any{"spec": map[string]any{"renewTime": l.activeTime.UTC().Format(microTimeFormat), "holderIdentity": l.job}}
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

// restoreCost continues the cost of an attempt whose runner was interrupted, as by preemption.
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

// send returns the response of the API server.
func (l *lease) send(ctx context.Context, method string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := l.client.Do(ctx, method, l.path, map[string]string{"Content-Type": "application/merge-patch+json"}, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	const maxAnswerBytes = 1 << 20
	return io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
}

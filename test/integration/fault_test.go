package integration

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// fault is a simulated failure of one of the operator's requests.
type fault int

const (
	delivered    fault = iota
	undelivered        // it does not reach the API server
	answerIsLost       // the API server carries it out, and the response is lost
	conflicted         // the API server responds with Conflict
	broken             // the API server responds with InternalError
)

// faultyNetwork injects faults between the operator and the API server, by namespace.
var faults = &faultyNetwork{rules: map[string]func(*http.Request) fault{}}

type faultyNetwork struct {
	mu    sync.Mutex
	rules map[string]func(*http.Request) fault
}

var errFault = errors.New("the network is down (injected)")

func (n *faultyNetwork) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		switch n.of(request) {
		case undelivered:
			return nil, errFault
		case answerIsLost:
			response, err := next.RoundTrip(request)
			if err == nil {
				_ = response.Body.Close()
			}
			return nil, errFault
		case conflicted:
			return refusal(request, http.StatusConflict, metav1.StatusReasonConflict), nil
		case broken:
			return refusal(request, http.StatusInternalServerError, metav1.StatusReasonInternalError), nil
		default:
			return next.RoundTrip(request)
		}
	})
}

// refusal returns an error response of the API server.
func refusal(request *http.Request, code int, reason metav1.StatusReason) *http.Response {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"injected"}`, code, reason)
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

func (n *faultyNetwork) of(request *http.Request) fault {
	_, rest, namespaced := strings.Cut(request.URL.Path, "/namespaces/")
	if !namespaced {
		return delivered
	}
	ns, _, _ := strings.Cut(rest, "/")
	n.mu.Lock()
	rule := n.rules[ns]
	n.mu.Unlock()
	if rule == nil {
		return delivered
	}
	return rule(request)
}

// set installs the rule for a namespace until the test ends or it is replaced.
func (n *faultyNetwork) set(t *testing.T, ns string, rule func(*http.Request) fault) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules[ns] = rule
	t.Cleanup(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.rules, ns)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func isWrite(request *http.Request) bool { return request.Method != http.MethodGet }

// A failed list must not be treated as an empty one.
func TestFinalizerIsKeptWhileJobsCannotBeListed(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	s := createSequenceIn(t, ns, testbuilder.SequentialJob("list-fails", "").Step("a").Obj())
	pod := s.waitForPod("a")
	failed := make(chan struct{}, 1)
	faults.set(t, ns, func(request *http.Request) fault {
		if request.Method == http.MethodGet && strings.HasSuffix(request.URL.Path, "/jobs") {
			select {
			case failed <- struct{}{}:
			default:
			}
			return undelivered
		}
		return delivered
	})
	s.deleteSequence()
	<-failed
	s.wantUnchanged("the finalizer", func() bool { return len(s.readSequence().Finalizers) > 0 })
	faults.set(t, ns, nil)
	s.waitUntilDeleted(s.sj)
	s.waitUntilDeleted(pod)
}

// Every third write, or its response, is lost.
func TestSequencesCompleteOnAnUnreliableNetwork(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	faults.set(t, ns, func(request *http.Request) fault {
		if !isWrite(request) {
			return delivered
		}
		return []fault{delivered, delivered, delivered, delivered, undelivered, answerIsLost}[rand.IntN(6)]
	})
	var sequences []*sequenceTest
	for i := range 10 {
		sj := testbuilder.SequentialJob(fmt.Sprintf("unreliable-%d", i), "").Step("a").Step("b", testbuilder.RecordOutput()).Step("c").Finally("d").Obj()
		s := newSequenceTest(t, ns, sj)
		sj.Spec.Template.Annotations[simDuration] = "100ms"
		s.createSequence()
		sequences = append(sequences, s)
	}
	for _, s := range sequences {
		s.waitForPhase(v1alpha1.PhaseCompleted)
		if jobs := s.listJobs(); len(jobs) != 4 {
			t.Errorf("%s: %d Jobs, want 4", s.sj.Name, len(jobs))
		}
	}
}

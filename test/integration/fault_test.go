package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// fault is a simulated failure of one of the operator's requests.
type fault int

const (
	delivered    fault = iota
	undelivered        // it does not reach the API server
	answerIsLost       // the API server carries it out, and the response is lost
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
		default:
			return next.RoundTrip(request)
		}
	})
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

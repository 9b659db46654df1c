package egressproxy

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
)

// Reasons of refusals, which are labels of the metric.
const (
	reasonMethodNotAllowed   = "MethodNotAllowed"
	reasonUnauthenticated    = "Unauthenticated"
	reasonHostNotAllowed     = "HostNotAllowed"
	reasonAddressNotAllowed  = "AddressNotAllowed"
	reasonTooManyConnections = "TooManyConnections"
	reasonUnreachable        = "Unreachable"
	reasonNoTLS              = "NoTLS"
	reasonNameMismatch       = "ServerNameMismatch"
	reasonHelloTimeout       = "HelloTimeout"
)

// refusal is a request that the proxy refuses, and the reason.
type refusal struct {
	status  int
	reason  string
	message string
}

func (r *refusal) Error() string { return r.message }

func refusalf(status int, reason, format string, args ...any) *refusal {
	return &refusal{status, reason, fmt.Sprintf(format, args...)}
}

func (r *refusal) response(request *http.Request) *http.Response {
	text := "egress proxy: " + r.message + "\n"
	response := &http.Response{
		StatusCode: r.status, ProtoMajor: 1, ProtoMinor: 1, Request: &http.Request{Method: http.MethodGet, URL: request.URL}, Close: true,
		Header:        http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
		ContentLength: int64(len(text)), Body: io.NopCloser(strings.NewReader(text)),
	}
	if r.status == http.StatusProxyAuthRequired {
		response.Header.Set("Proxy-Authenticate", `Basic realm="yardmaster egress proxy"`)
	}
	return response
}

const (
	// loggedSessions bounds the sessions whose refusals are counted for the limit of their log.
	loggedSessions = 1024
	// logBurst refusals of a session are logged at once, and then one each second.
	logBurst = 10
)

// refusals counts refusals, and logs some of them: a session can cause any number of refusals.
type refusals struct {
	log     *slog.Logger
	total   *prometheus.CounterVec
	mu      sync.Mutex
	limiter *lru.Cache // of *logLimit, by UID
}

type logLimit struct {
	*rate.Limiter

	suppressed int
}

func newRefusals(log *slog.Logger, registry prometheus.Registerer) *refusals {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "yardmaster_egress_refused_total",
		Help: "Connections that the egress proxy refused to sessions, by SessionRunner and reason. Without a valid token, the runner is empty.",
	}, []string{"namespace", "runner", "reason"})
	registry.MustRegister(total)
	return &refusals{log: log, total: total, limiter: lru.New(loggedSessions)}
}

func (r *refusals) record(namespace string, session *adminauth.Session, host string, refused *refusal) {
	r.total.WithLabelValues(namespace, session.Runner, refused.reason).Inc()
	suppressed, logged := r.admit(session.UID)
	if !logged {
		return
	}
	r.log.Info("Refused a connection", "reason", refused.reason, "message", refused.message, "host", host,
		"namespace", namespace, "session", session.Name, "uid", session.UID, "runner", session.Runner, "suppressed", suppressed)
}

// admit reports whether a refusal of a session is logged, and how many refusals were suppressed before it.
func (r *refusals) admit(uid string) (suppressed int, logged bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, found := r.limiter.Get(uid)
	limit, _ := known.(*logLimit)
	if !found {
		limit = &logLimit{Limiter: rate.NewLimiter(1, logBurst)}
		r.limiter.Add(uid, limit)
	}
	if !limit.Allow() {
		limit.suppressed++
		return 0, false
	}
	suppressed, limit.suppressed = limit.suppressed, 0
	return suppressed, true
}

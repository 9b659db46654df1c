package controller

import "sync"

// loggedResults has the reason of the last failure that was logged, by namespace. A namespace whose
// last scan succeeded has none.
type loggedResults struct {
	mu                sync.Mutex
	reasonByNamespace map[string]string
}

// swap records a namespace's result and returns the previous one.
func (l *loggedResults) swap(namespace, reason string) (previous string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reasonByNamespace == nil {
		l.reasonByNamespace = map[string]string{}
	}
	previous = l.reasonByNamespace[namespace]
	l.reasonByNamespace[namespace] = reason
	return previous
}

// logResult logs the result of a scan if it differs from that of the scan before. A namespace that
// does not exist would otherwise fill the log. A stack trace would say nothing about the cause.
func (r *Reconciler) logResult(namespace string, failed *scanError) {
	reason := ""
	if failed != nil {
		reason = failed.reason
	}
	previous := r.results.swap(namespace, reason)
	switch {
	case reason == previous:
	case failed == nil:
		r.log.Info("Scan succeeded again", "namespace", namespace, "previousReason", previous)
	default:
		r.log.Info("Scan failed; the same failure is not logged again", "namespace", namespace, "reason", reason, "error", failed.Error())
	}
}

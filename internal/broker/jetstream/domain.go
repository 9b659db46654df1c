package jetstream

import (
	"regexp"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

var namePattern = regexp.MustCompile(`^[-_A-Za-z0-9]+$`)

// isName reports whether all texts can be tokens of a subject, and no wildcards.
func isName(texts ...string) bool {
	return !slices.ContainsFunc(texts, func(text string) bool { return !namePattern.MatchString(text) })
}

func newJetStream(nc *nats.Conn, domain string) (jetstream.JetStream, error) {
	switch {
	case domain == "":
		return jetstream.New(nc)
	case !isName(domain):
		return nil, broker.Errorf(broker.ClassInvalid, "jetStreamDomain must consist of letters, digits, '-' and '_'")
	}
	return jetstream.NewWithDomain(nc, domain)
}

func (e *Engine) silentDomainError() error {
	return broker.Errorf(broker.ClassUnreachable,
		"the JetStream domain %s does not respond: it does not exist, or the leaf node of the connection is not connected to it", e.domain)
}

// apiPrefix returns what precedes the name of a request to JetStream in its subject.
func (e *Engine) apiPrefix() string {
	if e.domain == "" {
		return jetstream.DefaultAPIPrefix
	}
	return "$JS." + e.domain + ".API."
}

// nextMessageSubject receives pull requests.
func (e *Engine) nextMessageSubject(queue, priority string) string {
	return e.apiPrefix() + "CONSUMER.MSG.NEXT." + streamName(queue) + "." + priority
}

// storedKeySubject is the subject of a key in the stream of the queue's bucket.
func storedKeySubject(queue, key string) string { return "$KV." + bucketName(queue) + "." + key }

// keySubject stores a key of the queue's bucket.
func (e *Engine) keySubject(queue, key string) string {
	return e.writableSubject(storedKeySubject(queue, key))
}

// writableSubject stores a key of a bucket with this subject. Between domains, servers forward keys only with the prefix of
// the API.
func (e *Engine) writableSubject(subject string) string {
	if e.domain == "" {
		return subject
	}
	return e.apiPrefix() + subject
}

package jetstream

import (
	"regexp"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

var namePattern = regexp.MustCompile(`^[-_A-Za-z0-9]+$`)

// isName reports whether all texts can be tokens of a subject without wildcards.
func isName(texts ...string) bool {
	return !slices.ContainsFunc(texts, func(text string) bool { return !namePattern.MatchString(text) })
}

func (e *Engine) silentDomainError() error {
	return broker.Errorf(broker.ClassUnreachable,
		"the JetStream domain %s does not respond: it does not exist, or the leaf node of the connection is not connected to it", e.domain)
}

// apiPrefix returns the prefix of the subjects of requests to JetStream.
func (e *Engine) apiPrefix() string {
	if e.domain == "" {
		return jetstream.DefaultAPIPrefix
	}
	return "$JS." + e.domain + ".API."
}

func (e *Engine) nextMessageSubject(queue, priority string) string {
	return e.apiPrefix() + "CONSUMER.MSG.NEXT." + streamName(queue) + "." + priority
}

// storedKeySubject is the subject of a key in the stream of the queue's bucket.
func storedKeySubject(queue, key string) string { return "$KV." + bucketName(queue) + "." + key }

// writableSubject returns the subject to which a key of a bucket with this subject is published. Between domains, servers forward
// keys only with the prefix of the API.
func (e *Engine) writableSubject(subject string) string {
	if e.domain == "" {
		return subject
	}
	return e.apiPrefix() + subject
}

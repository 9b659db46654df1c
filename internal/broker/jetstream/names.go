package jetstream

import "strings"

// Names of queues have neither dots nor underscores, so none of these names can be that
// of another queue's object.
const (
	streamPrefix = "yardmaster_"
	deadSuffix   = "_dead"
	subjects     = "yardmaster."
)

func streamOf(queue string) string { return streamPrefix + queue }

func deadStreamOf(queue string) string { return streamPrefix + queue + deadSuffix }

func bucketOf(queue string) string { return streamPrefix + queue }

func readySubject(queue, priority string) string { return subjects + queue + ".ready." + priority }

func arrivedSubject(queue, priority string) string {
	return subjects + queue + ".arrived." + priority
}

func delayedSubjects(queue string) string { return subjects + queue + ".delayed.>" }

// closedSubject is the one of a queue that takes no more messages: a stream must have one.
func closedSubject(queue string) string { return subjects + queue + ".closed" }

func deadSubject(queue, priority string) string { return subjects + queue + ".dead." + priority }

// givenUpSubject is where the server tells that it delivers a message no more.
func givenUpSubject(queue string) string {
	return "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES." + streamOf(queue) + ".*"
}

// priorityOf is the last token of a message's subject.
func priorityOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// The keys of a queue's bucket.
const (
	limitKey = "limit"
	rateKey  = "rate"
)

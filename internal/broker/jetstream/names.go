package jetstream

import "strings"

// Names of queues have neither dots nor underscores, so none of these names can be that
// of another queue's object.
const (
	streamPrefix     = "yardmaster_"
	deadStreamSuffix = "_dead"
	subjectPrefix    = "yardmaster."
)

func streamName(queue string) string { return streamPrefix + queue }

func deadStreamName(queue string) string { return streamPrefix + queue + deadStreamSuffix }

func bucketName(queue string) string { return streamPrefix + queue }

func readySubject(queue, priority string) string { return subjectPrefix + queue + ".ready." + priority }

func arrivedSubject(queue, priority string) string {
	return subjectPrefix + queue + ".arrived." + priority
}

func delayedSubjectFilter(queue string) string { return subjectPrefix + queue + ".delayed.>" }

// placeholderSubject is the one of a queue that takes no more messages: a stream must have one.
func placeholderSubject(queue string) string { return subjectPrefix + queue + ".closed" }

func deadLetterSubject(queue, priority string) string {
	return subjectPrefix + queue + ".dead." + priority
}

// maxDeliveriesSubject is where the server tells that it delivers a message no more.
func maxDeliveriesSubject(queue string) string {
	return "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES." + streamName(queue) + ".*"
}

// priorityFromSubject is the last token of a message's subject.
func priorityFromSubject(subject string) string {
	return subject[strings.LastIndexByte(subject, '.')+1:]
}

// The keys of a queue's bucket.
const (
	rateLimitKey = "limit"
	rateStateKey = "rate"
)

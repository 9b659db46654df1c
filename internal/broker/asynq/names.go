package asynq

// The names that asynq gives to what it keeps. All of one queue are on one server of a
// cluster.
const (
	keyPrefix = "asynq:{"
	queuesKey = "asynq:queues"
)

func pendingKey(queue string) string { return keyPrefix + queue + "}:pending" }

func activeKey(queue string) string { return keyPrefix + queue + "}:active" }

func leaseKey(queue string) string { return keyPrefix + queue + "}:lease" }

func scheduledKey(queue string) string { return keyPrefix + queue + "}:scheduled" }

func retryKey(queue string) string { return keyPrefix + queue + "}:retry" }

func archivedKey(queue string) string { return keyPrefix + queue + "}:archived" }

func pausedKey(queue string) string { return keyPrefix + queue + "}:paused" }

func processedKey(queue string) string { return keyPrefix + queue + "}:processed" }

func failedKey(queue string) string { return keyPrefix + queue + "}:failed" }

// taskKey a queue; without an ID it is what the names of all its tasks begin with.
func taskKey(queue, id string) string { return keyPrefix + queue + "}:t:" + id }

// fieldAttempts of a task is this package's own: the attempts of a dead letter.
const fieldAttempts = "yardmaster_attempts"

// recordKey a queue is this package's own: whose it is.
func recordKey(queue string) string { return "yardmaster:{" + queue + "}" }

// cancelsKey has the tasks of a queue that their workers are to cancel, and canceledKey one that was canceled.
func cancelsKey(queue string) string { return recordKey(queue) + ":cancels" }

func canceledKey(queue, id string) string { return recordKey(queue) + ":canceled:" + id }

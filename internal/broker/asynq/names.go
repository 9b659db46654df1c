package asynq

// The names that asynq gives to what it keeps. All of one queue are on one server of a
// cluster.
const (
	prefix    = "asynq:{"
	allQueues = "asynq:queues"
)

func pendingOf(queue string) string { return prefix + queue + "}:pending" }

func activeOf(queue string) string { return prefix + queue + "}:active" }

func leaseOf(queue string) string { return prefix + queue + "}:lease" }

func scheduledOf(queue string) string { return prefix + queue + "}:scheduled" }

func retryOf(queue string) string { return prefix + queue + "}:retry" }

func archivedOf(queue string) string { return prefix + queue + "}:archived" }

func pausedOf(queue string) string { return prefix + queue + "}:paused" }

func processedOf(queue string) string { return prefix + queue + "}:processed" }

func failedOf(queue string) string { return prefix + queue + "}:failed" }

// taskOf a queue; without an ID it is what the names of all its tasks begin with.
func taskOf(queue, id string) string { return prefix + queue + "}:t:" + id }

// recordOf a queue is this package's own: whose it is.
func recordOf(queue string) string { return "yardmaster:{" + queue + "}" }

package broker

// QueueField is a field of a Queue, or a feature, that something must keep to.
type QueueField string

// The fields that engines differ in.
const (
	FieldLease       QueueField = "lease"
	FieldRetry       QueueField = "retry"
	FieldMaxInFlight QueueField = "maxInFlight"
	FieldMaxBacklog  QueueField = "maxBacklog"
	FieldDelayed     QueueField = "delayed"
	FieldDeadLetter  QueueField = "deadLetter"
	FieldPaused      QueueField = "paused"
	FieldPriorities  QueueField = "priorities"
	FieldRateLimit   QueueField = "rateLimit"
	FieldMaxAge      QueueField = "retention.maxAge"
)

// Enforcer is who keeps to a field.
type Enforcer string

// Who keeps to a field.
const (
	// EnforcedByBroker: whatever workers do.
	EnforcedByBroker Enforcer = "Broker"
	// EnforcedByWorker: by workers with this project's runtime.
	EnforcedByWorker Enforcer = "Worker"
	// NotEnforced: nobody.
	NotEnforced Enforcer = "Unsupported"
)

// Enforcement is who keeps to a field, and what is to be known about it.
type Enforcement struct {
	By Enforcer
	// Message for people; may be empty.
	Message string
}

// Capabilities tell who keeps to which field.
type Capabilities map[QueueField]Enforcement

package broker

// QueueField is a field of a QueueConfig, or a feature of queues.
type QueueField string

// The fields whose enforcement depends on the engine.
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

// Enforcer is the component that enforces a field.
type Enforcer string

// The enforcers.
const (
	// EnforcedByBroker: the broker enforces the field for every client.
	EnforcedByBroker Enforcer = "Broker"
	// EnforcedByWorker: only workers with the runtime of this project enforce the field.
	EnforcedByWorker Enforcer = "Worker"
	// NotEnforced: the field has no effect.
	NotEnforced Enforcer = "Unsupported"
)

// Enforcement is how a field is enforced.
type Enforcement struct {
	By Enforcer
	// Message explains a restriction to users. Optional.
	Message string
}

// Capabilities is the enforcement of each field.
type Capabilities map[QueueField]Enforcement

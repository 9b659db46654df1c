package v1alpha1

// The types of conditions. Every kind has Ready, Reconciling and Stalled. The comments are the table of docs/reference/conditions.md.
const (
	// ConditionReady is True when the object does what its spec says; for a sequence of steps, when it has succeeded. Every kind has it.
	ConditionReady = "Ready"
	// ConditionReconciling is True while the operator works on the object, or waits for something that can happen by itself. Every kind has
	// it.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when the operator cannot make progress until someone changes the object or something it depends on. Every
	// kind has it.
	ConditionStalled = "Stalled"

	// ConditionAvailable is True when the run of a SequentialJob completed, or when minReplicas workers of a WorkerPool are ready, or as
	// many as it needs if these are fewer or it has no autoscaling.
	ConditionAvailable = "Available"
	// ConditionProgressing is True while the phase of a SequentialJob is Running, and for a WorkerPool unless a rollout fails or makes no
	// progress.
	ConditionProgressing = "Progressing"
	// ConditionFailed is True when the run of a SequentialJob failed.
	ConditionFailed = "Failed"
	// ConditionSuspended is True while no step of a SequentialJob runs because spec.suspend is true or the next step needs an approval.
	ConditionSuspended = "Suspended"
	// ConditionSpecAccepted is False when the spec of a SequentialJob or a change of it is refused, or when an AgenticSession is invalid or
	// its SessionRunner does not allow it.
	ConditionSpecAccepted = "SpecAccepted"
	// ConditionResourcesUnavailable is True while a ResourceQuota has no room for the next Job of a SequentialJob, its workspace or its
	// outputs. The SequentialJob waits.
	ConditionResourcesUnavailable = "ResourcesUnavailable"
	// ConditionBlocked is True while something keeps a SequentialJob, an AgenticSession, or the deletion of a Queue from continuing. A
	// session that fails because of it keeps the condition.
	ConditionBlocked = "Blocked"

	// ConditionLastRunSucceeded is True if the newest finished run of a Schedule succeeded. It is absent until a run has finished.
	ConditionLastRunSucceeded = "LastRunSucceeded"

	// ConditionTruncated is True when a JobReport omits findings.
	ConditionTruncated = "Truncated"
	// ConditionOpenReportsReady is True when an OpenReports Report has the findings of a JobReport too. It exists only if that is enabled.
	ConditionOpenReportsReady = "OpenReportsReady"

	// ConditionBrokerReachable is False when a Queue has no broker, the Secret of the broker is missing or invalid, or the broker does not
	// answer, refuses the login or a permission, or cannot be used: it is too old, has no JetStream, or its URL has a denied address.
	ConditionBrokerReachable = "BrokerReachable"
	// ConditionConfigSynced is False when the queue on the broker does not match the spec of a Queue, nothing enforces a field of the spec, or
	// another Queue or program owns the queue. It is Unknown until the broker confirms that this Queue owns the queue.
	ConditionConfigSynced = "ConfigSynced"
	// ConditionReplicated is True when as many servers as the storage of a Queue requires, and at least two, have all messages.
	ConditionReplicated = "Replicated"
	// ConditionDeadLettersPresent is True if a Queue has at least deadLetter.alertThreshold dead letters.
	ConditionDeadLettersPresent = "DeadLettersPresent"

	// ConditionScalingActive is False when the autoscaling of a WorkerPool is off or suspended, when something prevents it, or when queue
	// metrics could not be read, which a pool of a fixed size needs too, to drain workers.
	ConditionScalingActive = "ScalingActive"
	// ConditionScalingLimited is True when limits allow a WorkerPool fewer workers than recommended.
	ConditionScalingLimited = "ScalingLimited"
	// ConditionDegraded is True when workers of a WorkerPool cannot start, keep restarting, take no messages or finish none that are due, or
	// have not drained within drain.timeout.
	ConditionDegraded = "Degraded"

	// ConditionNetworkRestricted is True if the NetworkPolicy of an AgenticSession matches its SessionRunner, is enforced if its Pod checks
	// that, and no other NetworkPolicy allows more.
	ConditionNetworkRestricted = "NetworkRestricted"
	// ConditionRunnerStarted is True if the runner of an AgenticSession has started. Its reason says how far the start is: the Job, the Pod, the
	// container.
	ConditionRunnerStarted = "RunnerStarted"
	// ConditionRunnerReporting is Unknown while the runner of an AgenticSession has not reported what the session asks for: activity with
	// inactivityTimeout, a cost with maxCostUSD. It is False if a report is malformed, and absent if the session asks for none and has no result.
	ConditionRunnerReporting = "RunnerReporting"
	// ConditionPushed is True if all work of the last attempt of an AgenticSession in repos with autoPush is on their servers, False if some is
	// not, with the place where it is instead, and Unknown before the end of the attempt and if its runner did not report all repos.
	ConditionPushed = "Pushed"
	// ConditionServing is True while the runner of an interactive AgenticSession accepts connections.
	ConditionServing = "Serving"
	// ConditionSucceeded is True if the last run of an AgenticSession succeeded, False if it failed, and Unknown before its end.
	ConditionSucceeded = "Succeeded"
	// ConditionEgressProxyReady is True if the egress proxy of a SessionRunner's namespace runs with its hosts.
	ConditionEgressProxyReady = "EgressProxyReady"
)

package v1alpha1

// Source is where to read the backlog of workers that consume no Queue. Exactly one field must be
// set.
//
// +kubebuilder:validation:ExactlyOneOf=redisList;redisStream;rabbitMQ;natsJetStream;prometheus;external
type Source struct {
	// redisList counts the entries of a list in Redis or Valkey.
	// +optional
	RedisList *RedisListSource `json:"redisList,omitempty"`
	// redisStream counts the entries of a stream that a consumer group has not read or not
	// acknowledged.
	// +optional
	RedisStream *RedisStreamSource `json:"redisStream,omitempty"`
	// rabbitMQ counts the messages of a RabbitMQ queue, ready and unacknowledged.
	// +optional
	RabbitMQ *RabbitMQSource `json:"rabbitMQ,omitempty"`
	// natsJetStream counts the messages of a stream that a consumer has not delivered or that are not
	// acknowledged. Stream and consumer belong to the application, and are not changed.
	// +optional
	NATSJetStream *NATSJetStreamSource `json:"natsJetStream,omitempty"`
	// prometheus evaluates a PromQL query.
	// +optional
	Prometheus *PrometheusSource `json:"prometheus,omitempty"`
	// external queries a KEDA external scaler over gRPC.
	// +optional
	External *ExternalSource `json:"external,omitempty"`
}

// RedisListSource counts the entries of a list in Redis or Valkey.
type RedisListSource struct {
	BrokerAccess `json:",inline"`

	// sentinel finds the server through Sentinels: the URL has their addresses. Default: the URL has
	// the address of the server, or those of a cluster.
	// +optional
	Sentinel *RedisSentinel `json:"sentinel,omitempty"`

	// key of the list.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Key string `json:"key"`
}

// RedisStreamSource counts the entries of a stream that a consumer group has not finished.
type RedisStreamSource struct {
	BrokerAccess `json:",inline"`

	// sentinel finds the server through Sentinels: the URL has their addresses. Default: the URL has
	// the address of the server, or those of a cluster.
	// +optional
	Sentinel *RedisSentinel `json:"sentinel,omitempty"`

	// key of the stream.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Key string `json:"key"`

	// group is the name of the consumer group.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Group string `json:"group"`
}

// RabbitMQSource counts the messages of a queue through RabbitMQ's management API.
type RabbitMQSource struct {
	BrokerAccess `json:",inline"`

	// vhost is the virtual host of the queue. Default /.
	// +optional
	// +kubebuilder:default=/
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	VHost string `json:"vhost,omitempty"`

	// queue is the name of the queue.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Queue string `json:"queue"`
}

// NATSJetStreamSource counts the messages of an existing JetStream consumer. The fields have the names
// that they have in the trigger nats-jetstream of KEDA.
type NATSJetStreamSource struct {
	BrokerAccess `json:",inline"`

	// nats has settings of the operator's connection. Default: those of a server without domains and
	// restricted inboxes.
	// +optional
	NATS *NATSConnection `json:"nats,omitempty"`

	// stream is the name of the stream, in the account of the login.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[^\s.*>/\\]+$`
	Stream string `json:"stream"`

	// consumer is the name of a pull or push consumer of the stream.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[^\s.*>/\\]+$`
	Consumer string `json:"consumer"`

	// lagThreshold is the number of messages per worker, 1 to 1000000. autoscaling.backlogPerReplica
	// overrides it. Default: that of a source without a target, which is concurrency, but at least 5,
	// while workers report no service time.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	LagThreshold int32 `json:"lagThreshold,omitempty"`

	// activationLagThreshold is the number of messages up to which the pool scales to zero, and stays
	// there, if autoscaling.minReplicas is 0. At most 1000000. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	ActivationLagThreshold int32 `json:"activationLagThreshold,omitempty"`
}

// PrometheusSource evaluates PromQL queries. Each query must return exactly one value. An empty
// result is an error, not 0.
type PrometheusSource struct {
	BrokerAccess `json:",inline"`

	// query returns the number of messages waiting.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`

	// inFlightQuery returns the number of messages in flight. If it is omitted, the workers are
	// asked.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	InFlightQuery string `json:"inFlightQuery,omitempty"`

	// arrivalsQuery returns the cumulative number of messages received, a counter. If it is
	// omitted, the pool scales by its backlog only.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	ArrivalsQuery string `json:"arrivalsQuery,omitempty"`
}

// ExternalSource queries a program that implements the protocol of KEDA's external scalers.
type ExternalSource struct {
	// address of the program, as host:port.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^/\s]+:[0-9]{1,5}$`
	Address string `json:"address"`

	// metadata to send to the program, as in the trigger of a ScaledObject. At most 32 entries.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Metadata map[string]string `json:"metadata,omitempty"`

	// tlsSecretRef names a Secret with ca.crt, and with tls.crt and tls.key if the program
	// requires a client certificate. If it is omitted, the connection does not use TLS.
	// +optional
	TLSSecretRef *LocalReference `json:"tlsSecretRef,omitempty"`
}

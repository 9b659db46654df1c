// Package redisclient connects to Redis and Valkey, for the asynq engine and the Redis backlog
// source, and classifies their errors.
package redisclient

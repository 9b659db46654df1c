// Package redis connects to Redis and Valkey, and reads how much waits there in a list, or
// in a stream for a group of consumers.
package redis

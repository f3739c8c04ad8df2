# Queue of interruption messages for mortise

variable "cluster_name" {
  description = "Name of the EKS cluster"
  type        = string
  default     = "demo"
}

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

data "aws_region" "current" {}

resource "aws_sqs_queue" "interruption" {
  name                      = var.cluster_name
  message_retention_seconds = 300
  sqs_managed_sse_enabled   = true
}

resource "aws_sqs_queue_policy" "interruption" {
  queue_url = aws_sqs_queue.interruption.url
  policy = jsonencode({
    Statement = [
      {
        Action = "sqs:SendMessage"
        Condition = {
          ArnLike = {
            "aws:SourceArn" = "arn:${data.aws_partition.current.partition}:events:${data.aws_region.current.id}:${data.aws_caller_identity.current.account_id}:rule/*"
          }
        }
        Effect = "Allow"
        Principal = {
          Service = "events.amazonaws.com"
        }
        Resource = "arn:${data.aws_partition.current.partition}:sqs:${data.aws_region.current.id}:${data.aws_caller_identity.current.account_id}:${var.cluster_name}"
        Sid      = "RulesMaySend"
      },
      {
        Action = "sqs:*"
        Condition = {
          Bool = {
            "aws:SecureTransport" = "false"
          }
        }
        Effect    = "Deny"
        Principal = "*"
        Resource  = "arn:${data.aws_partition.current.partition}:sqs:${data.aws_region.current.id}:${data.aws_caller_identity.current.account_id}:${var.cluster_name}"
        Sid       = "RefuseWithoutTls"
      },
    ]
    Version = "2012-10-17"
  })
}

resource "aws_cloudwatch_event_rule" "scheduled_change" {
  event_pattern = jsonencode({
    "detail-type" = ["AWS Health Event"]
    source        = ["aws.health"]
  })
}

resource "aws_cloudwatch_event_target" "scheduled_change" {
  rule = aws_cloudwatch_event_rule.scheduled_change.name
  arn  = aws_sqs_queue.interruption.arn
}

resource "aws_cloudwatch_event_rule" "spot_interruption" {
  event_pattern = jsonencode({
    "detail-type" = ["EC2 Spot Instance Interruption Warning"]
    source        = ["aws.ec2"]
  })
}

resource "aws_cloudwatch_event_target" "spot_interruption" {
  rule = aws_cloudwatch_event_rule.spot_interruption.name
  arn  = aws_sqs_queue.interruption.arn
}

resource "aws_cloudwatch_event_rule" "rebalance" {
  event_pattern = jsonencode({
    "detail-type" = ["EC2 Instance Rebalance Recommendation"]
    source        = ["aws.ec2"]
  })
}

resource "aws_cloudwatch_event_target" "rebalance" {
  rule = aws_cloudwatch_event_rule.rebalance.name
  arn  = aws_sqs_queue.interruption.arn
}

resource "aws_cloudwatch_event_rule" "state_change" {
  event_pattern = jsonencode({
    "detail-type" = ["EC2 Instance State-change Notification"]
    source        = ["aws.ec2"]
  })
}

resource "aws_cloudwatch_event_target" "state_change" {
  rule = aws_cloudwatch_event_rule.state_change.name
  arn  = aws_sqs_queue.interruption.arn
}

resource "aws_cloudwatch_event_rule" "reservation_interruption" {
  event_pattern = jsonencode({
    "detail-type" = ["EC2 Capacity Reservation Instance Interruption Warning"]
    source        = ["aws.ec2"]
  })
}

resource "aws_cloudwatch_event_target" "reservation_interruption" {
  rule = aws_cloudwatch_event_rule.reservation_interruption.name
  arn  = aws_sqs_queue.interruption.arn
}

output "queue_name" {
  value = aws_sqs_queue.interruption.name
}
